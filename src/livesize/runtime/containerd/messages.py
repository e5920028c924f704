"""The messages of CRI v1 and of containerd's events that we use (machinery/message_tables.py).

CRI's fields and numbers are those of Kubernetes' runtime/v1 interface. Every call NAME takes a
NAMERequest and answers a NAMEResponse.
"""

from __future__ import annotations

from livesize.machinery.message_tables import MessageTable
from livesize.machinery.message_tables import ProtobufMessage as ProtobufMessage

NODE_NETWORK = 2
POD_NAMESPACE = 0
CONTAINER_NAMESPACE = 1

SANDBOX_READY = 0

CONTAINER_CREATED = 0
CONTAINER_RUNNING = 1
CONTAINER_EXITED = 2
CONTAINER_UNKNOWN = 3

_CRI = {
    "Int64Value": "value:1:int64",
    "KeyValue": "key:1:string value:2:string",
    "ImageSpec": "image:1:string annotations:2:map",
    "NamespaceOption": "network:1:int32 pid:2:int32 ipc:3:int32",
    "SecurityProfile": "profile_type:1:int32 localhost_ref:2:string",
    "LinuxContainerResources": (
        "cpu_period:1:int64 cpu_quota:2:int64 cpu_shares:3:int64 memory_limit_in_bytes:4:int64"
        " oom_score_adj:5:int64 cpuset_cpus:6:string cpuset_mems:7:string unified:9:map"
    ),
    # Pods
    "PodSandboxMetadata": "name:1:string uid:2:string namespace:3:string attempt:4:uint32",
    "LinuxSandboxSecurityContext": (
        "namespace_options:1:NamespaceOption privileged:6:bool seccomp:9:SecurityProfile"
    ),
    "LinuxPodSandboxConfig": (
        "cgroup_parent:1:string security_context:2:LinuxSandboxSecurityContext sysctls:3:map"
    ),
    "PodSandboxConfig": (
        "metadata:1:PodSandboxMetadata hostname:2:string log_directory:3:string labels:6:map"
        " annotations:7:map linux:8:LinuxPodSandboxConfig"
    ),
    "RunPodSandboxRequest": "config:1:PodSandboxConfig runtime_handler:2:string",
    "RunPodSandboxResponse": "pod_sandbox_id:1:string",
    "StopPodSandboxRequest": "pod_sandbox_id:1:string",
    "StopPodSandboxResponse": "",
    "RemovePodSandboxRequest": "pod_sandbox_id:1:string",
    "RemovePodSandboxResponse": "",
    "PodSandboxStatusRequest": "pod_sandbox_id:1:string verbose:2:bool",
    "PodSandboxNetworkStatus": "ip:1:string",
    "PodSandboxStatus": (
        "id:1:string metadata:2:PodSandboxMetadata state:3:int32 created_at:4:int64"
        " network:5:PodSandboxNetworkStatus labels:7:map annotations:8:map"
    ),
    "PodSandboxStatusResponse": "status:1:PodSandboxStatus info:2:map",
    "PodSandboxFilter": "id:1:string label_selector:3:map",
    "ListPodSandboxRequest": "filter:1:PodSandboxFilter",
    "PodSandbox": (
        "id:1:string metadata:2:PodSandboxMetadata state:3:int32 created_at:4:int64"
        " labels:5:map annotations:6:map"
    ),
    "ListPodSandboxResponse": "items:1:*PodSandbox",
    # Containers
    "ContainerMetadata": "name:1:string attempt:2:uint32",
    "Capability": "add_capabilities:1:*string drop_capabilities:2:*string",
    "LinuxContainerSecurityContext": (
        "capabilities:1:Capability privileged:2:bool namespace_options:3:NamespaceOption"
        " run_as_user:5:Int64Value"
        " readonly_rootfs:7:bool supplemental_groups:8:*int64 no_new_privs:11:bool"
        " run_as_group:12:Int64Value masked_paths:13:*string readonly_paths:14:*string"
        " seccomp:15:SecurityProfile"
    ),
    "LinuxContainerConfig": (
        "resources:1:LinuxContainerResources security_context:2:LinuxContainerSecurityContext"
    ),
    "Mount": "container_path:1:string host_path:2:string readonly:3:bool",
    "ContainerConfig": (
        "metadata:1:ContainerMetadata image:2:ImageSpec command:3:*string args:4:*string"
        " working_dir:5:string envs:6:*KeyValue mounts:7:*Mount labels:9:map annotations:10:map"
        " log_path:11:string stdin:12:bool stdin_once:13:bool tty:14:bool"
        " linux:15:LinuxContainerConfig"
    ),
    "CreateContainerRequest": (
        "pod_sandbox_id:1:string config:2:ContainerConfig sandbox_config:3:PodSandboxConfig"
    ),
    "CreateContainerResponse": "container_id:1:string",
    "StartContainerRequest": "container_id:1:string",
    "StartContainerResponse": "",
    "StopContainerRequest": "container_id:1:string timeout:2:int64",
    "StopContainerResponse": "",
    "RemoveContainerRequest": "container_id:1:string",
    "RemoveContainerResponse": "",
    "ContainerFilter": "id:1:string pod_sandbox_id:3:string label_selector:4:map",
    "ListContainersRequest": "filter:1:ContainerFilter",
    "Container": (
        "id:1:string pod_sandbox_id:2:string metadata:3:ContainerMetadata image_ref:5:string"
        " state:6:int32 created_at:7:int64 labels:8:map annotations:9:map"
    ),
    "ListContainersResponse": "containers:1:*Container",
    "ContainerStatusRequest": "container_id:1:string verbose:2:bool",
    "ContainerStatus": (
        "id:1:string metadata:2:ContainerMetadata state:3:int32 created_at:4:int64"
        " started_at:5:int64 finished_at:6:int64 exit_code:7:int32 image:8:ImageSpec"
        " image_ref:9:string reason:10:string message:11:string labels:12:map annotations:13:map"
        " log_path:15:string"
    ),
    "ContainerStatusResponse": "status:1:ContainerStatus info:2:map",
    "UpdateContainerResourcesRequest": "container_id:1:string linux:2:LinuxContainerResources",
    "UpdateContainerResourcesResponse": "",
    "ExecSyncRequest": "container_id:1:string cmd:2:*string timeout:3:int64",
    "ExecSyncResponse": "stdout:1:bytes stderr:2:bytes exit_code:3:int32",
    "ExecRequest": (
        "container_id:1:string cmd:2:*string tty:3:bool stdin:4:bool stdout:5:bool stderr:6:bool"
    ),
    "ExecResponse": "url:1:string",
    "AttachRequest": "container_id:1:string stdin:2:bool tty:3:bool stdout:4:bool stderr:5:bool",
    "AttachResponse": "url:1:string",
    "ReopenContainerLogRequest": "container_id:1:string",
    "ReopenContainerLogResponse": "",
    # Images
    "Image": (
        "id:1:string repo_tags:2:*string repo_digests:3:*string size:4:uint64 uid:5:Int64Value"
        " username:6:string"
    ),
    "RemoveImageRequest": "image:1:ImageSpec",
    "RemoveImageResponse": "",
    "ImageFilter": "image:1:ImageSpec",
    "ListImagesRequest": "filter:1:ImageFilter",
    "ListImagesResponse": "images:1:*Image",
    "ImageStatusRequest": "image:1:ImageSpec verbose:2:bool",
    "ImageStatusResponse": "image:1:Image info:2:map",
    "AuthConfig": (
        "username:1:string password:2:string auth:3:string server_address:4:string"
        " identity_token:5:string registry_token:6:string"
    ),
    "PullImageRequest": "image:1:ImageSpec auth:2:AuthConfig",
    "PullImageResponse": "image_ref:1:string",
    # The runtime itself
    "VersionRequest": "version:1:string",
    "VersionResponse": (
        "version:1:string runtime_name:2:string runtime_version:3:string"
        " runtime_api_version:4:string"
    ),
    "StatusRequest": "verbose:1:bool",
    "RuntimeCondition": "type:1:string status:2:bool reason:3:string message:4:string",
    "RuntimeStatus": "conditions:1:*RuntimeCondition",
    "StatusResponse": "status:1:RuntimeStatus info:2:map",
    "RuntimeConfigRequest": "",
    "LinuxRuntimeConfiguration": "cgroup_driver:1:int32",
    "RuntimeConfigResponse": "linux:1:LinuxRuntimeConfiguration",
}

# Of containerd itself, which tells what happens to its tasks; CRI's own events came later.
_EVENTS = {
    "SubscribeRequest": "filters:1:*string",
    "Any": "type_url:1:string value:2:bytes",
    "Envelope": "namespace:2:string topic:3:string event:4:Any",
    "TaskExit": "container_id:1:string id:2:string pid:3:uint32 exit_status:4:uint32",
    "TaskOOM": "container_id:1:string",
    "TaskExecStarted": "container_id:1:string exec_id:2:string pid:3:uint32",
}

_cri = MessageTable("livesize.cri", _CRI).message
_events = MessageTable("livesize.containerd", _EVENTS).message


def request_of(call: str) -> ProtobufMessage:
    """The class of what a call of CRI takes."""
    return _cri(f"{call}Request")


def response_of(call: str) -> ProtobufMessage:
    return _cri(f"{call}Response")


AuthConfig = _cri("AuthConfig")
Capability = _cri("Capability")
ContainerConfig = _cri("ContainerConfig")
ContainerFilter = _cri("ContainerFilter")
ContainerMetadata = _cri("ContainerMetadata")
ImageSpec = _cri("ImageSpec")
KeyValue = _cri("KeyValue")
LinuxContainerConfig = _cri("LinuxContainerConfig")
LinuxContainerResources = _cri("LinuxContainerResources")
LinuxContainerSecurityContext = _cri("LinuxContainerSecurityContext")
LinuxPodSandboxConfig = _cri("LinuxPodSandboxConfig")
LinuxSandboxSecurityContext = _cri("LinuxSandboxSecurityContext")
Mount = _cri("Mount")
NamespaceOption = _cri("NamespaceOption")
PodSandboxConfig = _cri("PodSandboxConfig")
PodSandboxFilter = _cri("PodSandboxFilter")
PodSandboxMetadata = _cri("PodSandboxMetadata")
SecurityProfile = _cri("SecurityProfile")

ContainerStatus = _cri("ContainerStatus")
ContainerStatusResponse = _cri("ContainerStatusResponse")
PodSandbox = _cri("PodSandbox")

SubscribeRequest = _events("SubscribeRequest")
Envelope = _events("Envelope")
TaskExit = _events("TaskExit")
TaskOOM = _events("TaskOOM")
TaskExecStarted = _events("TaskExecStarted")
